// Package cost measures the time that operations take, on the wall and of processors.
package cost
