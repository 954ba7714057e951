// Package report keeps the figures of a suite, prints and compares them.
//
// A metric is one figure: suite, case (a corpus, a size), subject, name, unit, value. A floor is what snapfs must reach
// beside a peer in the same run. A report is written as JSON after each subject, so that an interrupted run can be
// resumed; it is printed as a table per case, or as Markdown. Reports of pieces of a suite can be merged, and reports
// compared: the error says whether a figure of snapfs got worse.
package report
