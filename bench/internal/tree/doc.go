// Package tree makes, copies, digests and compares directory trees.
package tree
