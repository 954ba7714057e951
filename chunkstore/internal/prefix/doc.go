// Package prefix chooses a prefix for many short frames: what several of them have in common, so that each of them can
// refer to it.
//
// # Nouns
//
//	part     bytes that are compressed together with the parts around it
//	window   a stretch of the parts that one frame holds: what repeats in it costs little anyway
//	anchor   a position whose next bytes have a hash that is chosen by its value, so that equal bytes have equal anchors
//	worth    of an anchor: in how many more windows its hash occurs
//	piece    a candidate for the prefix
package prefix
