// Package layout holds the test of which package may import which. It has no
// code: the rules and their reasons stand beside the test.
package layout
