// Package treefilter chooses a part of a tree: by paths, by patterns, and by the .gitignore files in it.
//
// # Nouns
//
//   - A path is relative to the root of the tree, slash-separated, of raw bytes. A path that is chosen brings all that is
//     in it, and the directories above it.
//   - A pattern is a line of a .gitignore file: what git's documentation of gitignore says. Those of [Options.Exclude]
//     stand in a list before all files, as those of git's --exclude do: the last one that matches decides.
//   - A Dir is a directory of the tree with the patterns that are valid in it. What a directory that is left out has in
//     it cannot be taken in again.
//
// git leaves files alone that it knows in its index, ignored or not, and reads $GIT_DIR/info/exclude and the user's own
// list, too. Here only what is in the tree counts.
//
// Libraries for these patterns that were looked at take the more unusual ones in another way than git: classes of
// characters with "!", "**" inside of a name, a second match of what follows "**/". The test compares with git itself.
package treefilter
