// Package threeway plans how what was changed in one tree is brought into another, with which it has a tree in common.
// It reads the trees and changes none.
//
// # Nouns
//
//   - base is the tree that both stem from, from the tree whose changes are wanted, target the one that is to have them.
//   - An entity is a file or a directory with what it is in each tree. One that the base has is known by its path there,
//     wherever a side has moved it; one that only a side has, by its path in that side.
//   - A place is the directory, as an entity, and the name in it. What one side moves and the other changes, or fills
//     with new files, has both afterwards.
//   - A conflict is what both sides changed in different ways.
//
// # Rules
//
// Each property of an entity (place, type, contents, permissions, owner, each attribute) is as it is in the side that
// changed it. Contents that both changed are merged line by line, if they are texts. A directory that one side deletes
// stays while the other has something in it. Times go with what is taken, those
// of a directory with what changed last in it: they are never in conflict.
package threeway
