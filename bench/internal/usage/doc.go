// Package usage marks errors that are mistakes on the command line.
package usage
