// Package layout holds the test of which package may import which. It has no
// other code; the rules and their reasons are with the test.
package layout
