// Package corporatest has a history for tests.
package corporatest
