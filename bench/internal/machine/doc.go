// Package machine describes what a report was measured on: processor, kernel, and the versions of programs.
package machine
