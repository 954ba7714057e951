// Package textmerge merges two texts that stem from a third one, line by line, with the results of git merge-file.
//
// # Nouns
//
//   - base, ours and theirs are the three texts. A line has its newline, if it has one.
//   - A change is a range of lines of the base with the lines of one side that stand in its place.
//   - A hunk is a change of one side, or of both sides where their changes overlap or touch. In the latter case it is a
//     conflict, unless both sides say the same.
//
// Whether texts merge, and to what, depends on how the lines of two texts are matched where several ways are as short.
// So this package matches them as git does: the algorithm of Myers (An O(ND) Difference Algorithm and Its Variations,
// 1986) in linear space, after lines were set aside that have no match or very many (discard), with bounds on the search
// in texts with little in common (split), and with changes moved to where they join others, or else down (compact).
package textmerge
