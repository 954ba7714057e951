package cli

import (
	"strings"
	"unicode/utf8"
)

// helpWidth is how many columns the help takes.
const helpWidth = 100

// wrapped breaks the lines of paragraphs that are wider than the help. Indented lines stay as they are.
func wrapped(text string) string {
	var out []string
	var paragraph []string
	end := func() {
		for _, line := range paragraph {
			if utf8.RuneCountInString(line) > helpWidth {
				paragraph = fill(strings.Fields(strings.Join(paragraph, " ")))
				break
			}
		}
		out = append(out, paragraph...)
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			end()
			out = append(out, line)
			continue
		}
		paragraph = append(paragraph, line)
	}
	end()
	return strings.Join(out, "\n")
}

// fill puts words into lines.
func fill(words []string) []string {
	var lines []string
	line := ""
	for _, w := range words {
		switch {
		case line == "":
			line = w
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > helpWidth:
			lines = append(lines, line)
			line = w
		default:
			line += " " + w
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
