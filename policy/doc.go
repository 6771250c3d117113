// Package policy decides what follows the end of each attempt of an event
// stream: another attempt after a wait, or the end of the stream.
//
// # Words
//
// Streams, attempts, messages, the reconnection time and what a server asks for are
// defined in package [github.com/reprise-sse/reprise/eventsource].
//
// An attempt is productive if it brought a message, or stayed open for
// [Rules].ProgressAfter up to the last sign of life of the server. It is a poll if it
// ended cleanly without a message while the reconnection time was at least
// [Rules].PollAfter: the server has scheduled the next visit. It is fruitless if it is
// neither of these and was not restarted by the caller. Connecting alone is not
// progress: a server that accepts every request and closes at once is asked less and
// less often.
//
// A run is a number of fruitless attempts in a row, with or without polls between
// them. The budget, [Rules].Budget, is how long an outage may last: it starts with the
// end of an attempt and ends with a message.
//
// # Choosing a policy
//
// A client's Policy field takes a [Policy], a value that makes a [Reconnector] for
// each stream.
//
//   - [WHATWG], the default, reconnects after every end of the body and every
//     failure to connect, as browsers do, and stops at every response that is not an
//     event stream.
//   - [Resilient] also rides out overload and restarts of servers and proxies.
//   - [Never] makes one attempt.
//   - [MCPCall] and [MCPListen] follow the rules of the Model Context Protocol.
//   - [Rules] holds the numbers behind all of these but Never. Its zero value is
//     WHATWG; set what should differ: policy.Rules{Budget: time.Minute}. To change a
//     preset, assign to its fields.
//   - For everything else write your own Policy: often a [Func], or a [Constructor] of
//     a type that asks the Reconnector of Rules for most of its answers.
//
// # What a policy cannot do
//
// Whatever a policy says, the engine never waits less than the server asked, does not
// begin a wait that the context's deadline would cut short, and never resends a
// request that must not be repeated. A policy sees neither connections nor bodies,
// holds no timers, and needs no locks.
package policy
