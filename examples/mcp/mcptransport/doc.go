// Package mcptransport is the client side of MCP's Streamable HTTP transport, for
// the official Go SDK, on an event stream client that knows nothing of MCP.
//
// It is written to be read and copied. There is no timer, no sleep and no loop of
// attempts in it: how long to wait, whether to try again and when to give up is
// what package eventsource does and package policy decides. What is left for a
// transport is below.
//
// # Words
//
// A call is a JSON-RPC request, which is sent in a POST of its own and answered
// with JSON or with an event stream. The standby stream is the one that a GET
// opens, for what the server says unasked. A subscription is the stream that
// answers a subscriptions/listen call.
//
// Protocol revisions fall into two eras. Up to 2025-11-25 streams are resumable:
// events have IDs, and a GET with Last-Event-ID goes on where a stream broke off,
// also that of a call. From 2026-07-28 on they are not: there is no GET, no session
// and no event ID, a stream that breaks off has lost its call, and closing a
// stream is how a call is cancelled.
//
// # Which stream uses what
//
// A stream is what the server answered to a POST, plus the request that follows
// when it breaks off, plus a policy:
//
//	stream        begins with   goes on with      policy
//	call          the POST      GET, same ID      policy.MCPCall
//	standby       GET           GET, same ID      policy.MCPListen
//	call, new     the POST      nothing           policy.Never
//	subscription  the POST      POST, a new call  policy.MCPListen, without event IDs
//
// # What is left for a transport
//
// It parses JSON-RPC and skips what is none; matches answers to calls, and tells
// every call how its stream ended, exactly once; puts the session and the protocol
// version on every request; opens the standby stream when the session is ready, and
// opens it again after it was given up and the server has shown to be alive; and
// ends the connection when the session is gone. One stream's end harms no other.
package mcptransport
