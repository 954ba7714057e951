// Package progress shows what is going on and how much is left.
package progress
