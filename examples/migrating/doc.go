// Package migrating tests docs/migrating.md: its code, before and after, and the
// comparison with the other clients. It is a module of its own, so that nobody else has
// to require those.
package migrating
