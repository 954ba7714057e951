// Package caches empties the kernel's caches, for what is measured cold.
package caches
