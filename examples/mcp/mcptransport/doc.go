// Package mcptransport is the client side of MCP's Streamable HTTP transport, for
// the official Go SDK, on an event stream client that knows nothing of MCP.
//
// It is written to be read and copied. It contains no timer, no sleep and no loop of
// attempts: package policy decides how long to wait, whether to try again and when to
// give up, and package eventsource does it. What is left for a transport is listed
// below.
//
// # Words
//
// A call is a JSON-RPC request, which is sent in a POST of its own and answered
// with JSON or with an event stream. The standby stream is opened with a GET, for
// messages that are not answers. A subscription is the stream that answers a
// subscriptions/listen call.
//
// Protocol revisions fall into two eras. Up to 2025-11-25 streams are resumable:
// events have IDs, and a GET with Last-Event-ID continues a stream that broke off,
// including that of a call. From 2026-07-28 on they are not resumable: there is no
// GET, no session and no event ID, a call is lost when its stream breaks off, and
// closing the stream cancels the call.
//
// # Which stream uses what
//
// A stream is made of a response, the request that follows when the response breaks
// off, and a policy:
//
//	stream        begins with   goes on with      policy
//	call          the POST      GET, same ID      policy.MCPCall
//	standby       GET           GET, same ID      policy.MCPListen
//	call, new     the POST      nothing           policy.Never
//	subscription  the POST      POST, a new call  policy.MCPListen, without event IDs
//
// # What is left for a transport
//
// It parses JSON-RPC and skips everything else. It matches answers to calls, and
// tells every call exactly once how its stream ended. It puts the session and the
// protocol version on every request. It opens the standby stream when the session is
// ready, and opens it again when the stream was given up and the server turns out to
// be alive. It ends the connection when the session is gone. The end of one stream
// does not affect the others.
package mcptransport
