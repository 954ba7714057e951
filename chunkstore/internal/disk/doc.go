// Package disk asks for and takes space of the file system that a store lies on, and makes names durable.
package disk
