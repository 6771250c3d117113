package eventsourcetest

import (
	"net/http"
	"net/url"
	"time"
)

// A Request is what the server has recorded about one request, or about a connection
// that it refused. It is a copy that the receiver may keep, but the URL, the Header
// and the Body are shared with other copies and must not be changed. All times are
// times of the server's clock.
type Request struct {
	// Number counts the requests, refused connections among them; it is 1 for
	// the first.
	Number int

	// Refused tells that the connection was refused. There is no request then:
	// of the other fields only the times, the Gap and InFlight are set.
	Refused bool

	Proto  string // "HTTP/1.1" or "HTTP/2.0"
	Method string
	Host   string
	URL    *url.URL // as on the request line: path and query
	Header http.Header
	Body   []byte // all of it, or what came before it broke off

	// LastEventID is the Last-Event-ID header. HasLastEventID tells whether there
	// was one: a client without a last event ID sends none, not an empty one.
	LastEventID    string
	HasLastEventID bool

	// Connection is the number of the connection that carried the request, 1 for
	// the first that the server accepted. Requests that have it in common were
	// sent over one connection.
	Connection int

	// Arrived is when the request's header was read, or the connection refused.
	Arrived time.Time

	// Ended is when the response ended, zero until then: the moment before the
	// client can see its end, or when the server saw the client leave.
	Ended time.Time

	// ClientLeft tells that the client ended the response: it closed the
	// connection or cancelled the request before the end of the script.
	ClientLeft bool

	// Gap is the time from the end of the latest response before this request to
	// its arrival: how long the client waited. It is zero for the first, and for a
	// request that came while all others were still being answered.
	Gap time.Duration

	// InFlight is how many requests were being answered when this one had
	// arrived, itself included: 1 for a client that has one at a time. The server
	// may learn that a client has left only after its next request, so a client
	// that leaves and comes back without any wait may show a 2.
	InFlight int
}

// record is a Request in the making, under the server's lock.
type record struct {
	Request
	over     bool // Ended is set
	last     bool // the connection must not carry another request
	inOutage bool // refused by an Outage
}

func (r *record) setRefused(entry []Step) {
	outage, ok := refuses(entry)
	r.Refused, r.inOutage = ok, outage > 0
}
