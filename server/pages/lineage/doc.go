// Package lineage finds the bundles from which a bundle came and those that came of it, and draws them as a small graph.
//
// Read asks a server as the reader of the graph. However many bundles there are, it makes a few requests with bounded answers,
// and counts the bundles that it leaves out. Draw computes where everything is, and nothing else: it reads no clock, and the
// same graph gives the same picture.
package lineage
