// Package machine tells what a report was measured on: processor, kernel, and the versions of programs.
package machine
