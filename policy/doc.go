// Package policy decides what follows the end of each attempt of an event
// stream: another attempt after a wait, or the end of the stream.
//
// # Words
//
// An attempt is one try at a connection, from the request to the end of its
// response. A message is an event whose data is not empty. A server asks for a
// wait with a retry field, which sets the stream's reconnection time until the
// next one, or with a Retry-After header, which binds one wait.
//
// An attempt is productive if it brought a message, or stayed open for
// [Rules].ProgressAfter. It was a poll if it ended cleanly without a message
// and carried a retry field of its own of at least [Rules].PollAfter: the server has
// scheduled the next visit. It was fruitless if it was neither, nor restarted by
// the caller. Connecting alone is not progress: a server that accepts every
// request and closes at once gets ever rarer ones.
//
// # Choosing a policy
//
// A client's Policy field takes a function that makes a [Reconnector], one for
// each stream.
//
//   - [WHATWG], the default, reconnects after every end of the body and every
//     failure to connect, as browsers do, and stops at every response that is no
//     event stream.
//   - [Resilient] also rides out overload and restarts of servers and proxies.
//   - [Never] makes one attempt.
//   - [MCPCall] and [MCPListen] follow the rules of the Model Context Protocol.
//   - [Rules] holds the numbers behind all of these but Never. Its zero value is
//     WHATWG; set what should differ and pass the New method:
//     policy.Rules{Budget: time.Minute}.New.
//   - A Reconnector of one's own, often a [Func] or a type that asks Rules for
//     most of its answers, decides everything else.
//
// # What a policy cannot do
//
// Whatever a policy says, the engine never waits for less than the server asked,
// refuses a wait that the context's deadline would cut short, and never sends
// again a request that must not be repeated. A policy sees neither connections
// nor bodies, holds no timers, and needs no lock.
package policy
