// Package mountio is the suite io: it runs programs on mounted trees.
//
// A fixture is the tree that all systems have as their lower, with what the workloads need. A workload is what
// is timed; a session is a sequence of workloads in one fresh mount. Rounds go through the sessions, and in each
// through the systems in turn. snapfs is the real daemon over a stored snapshot. Every mount belongs to a session,
// which unmounts it whatever happened. What snapfs must reach beside its peers is in demands.go.
package mountio
