// Package migrating holds docs/migrating.md to what it says: its code, before and
// after, and the comparison with the clients that one may come from. It is a module of
// its own, so that nobody else has to require them.
package migrating
