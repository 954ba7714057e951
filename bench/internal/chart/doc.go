// Package chart draws reports, as SVG files for light and dark pages.
//
// A drawing makes the pictures of a report; a picture is rows of panels, with what their marks mean at the top and
// where and when the figures were measured at the bottom. Text is outlined (outline.go), so that a picture looks the
// same everywhere.
package chart
