// Package readset remembers what programs have read of a tree while they also change it.
//
// # Nouns
//
//   - The base is the tree as it was when the set began, or when it was last restarted.
//   - An entity is what the base has, or lacks, under a name. It keeps that name wherever programs move it, and what was
//     read of it stays known when they remove it.
//   - What programs have made themselves is no entity: to read it is no read of the base.
//   - A whole entity is one of which only is known that something in it was read, not what. When a set gets too large,
//     directories become whole, the deepest first: the answer gets coarser, and nothing is forgotten.
//   - A gap is a reason for which reads are missing from the set.
//
// Paths from outside are lists of names from the root, as the tree is now.
//
// # Format
//
// Encode writes, with integers as unsigned varints and names as their length and bytes:
//
//	magic, "snapfs reads 1\n"
//	gap: its length and bytes
//	kinds of the root, one byte: 1 contents, 2 listing, 4 missing, 8 attributes, 16 replaced by the programs' own contents,
//	128 whole
//	number of entities, then each: its directory, kinds as above, name
//	number of directories that programs made, and into which they moved something
//	number of places, then each: the directory, its name there, and what is there
//	CRC-32C of all that, 4 bytes, little endian
//
// Directories and what is at a place are numbers: 0 the root, then the entities from 1 on, then the directories that
// programs made; one more than the last stands for something else that they made. Only places are listed at which not
// the entity is that the base has there.
//
// A Set is safe for concurrent use; its lock is a leaf. Who changes names holds back those who read meanwhile.
package readset
