// Package program runs other programs to their end, and knows which Debian package a program comes from.
package program
