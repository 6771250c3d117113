package mcptransport

import (
	"context"
	"errors"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// A Transport connects an mcp.Client to a server over Streamable HTTP. Set at least
// Endpoint, and pass the Transport to mcp.Client.Connect. It holds only settings,
// which must not be changed after Connect, and can be used for any number of
// connections.
//
// A hook runs on the goroutine of the stream that it is about, and holds that stream
// up. Hooks may be called at the same time for different streams. A hook that panics
// ends the program, unless it runs in the caller's loop over [Transport.Resume].
type Transport struct {
	// Endpoint is the URL of the server's MCP endpoint.
	Endpoint string

	// Client has the settings of all streams. HTTPClient, ConnectTimeout,
	// MaxEventSize, Clock and Trace mean what they always mean; the following fields
	// have additional rules.
	//
	// Prepare is called for every request, including those that are not made by a
	// stream: the POST of a message, and the DELETE of the session. Use it to set a
	// fresh token. To answer a 401 with a new token and one more try, wrap
	// HTTPClient.Transport in a RoundTripper.
	//
	// HTTPClient.Timeout bounds the wait for the headers of a GET and nothing else: a
	// call takes as long as its context allows.
	//
	// IdleTimeout ends a silent first response of a call, a silent standby stream
	// and a silent subscription; policy.MCPCall has its own idle timeout for
	// responses that resume a call. It does not apply to calls of the era without
	// resumption, which it would cancel.
	//
	// Policy is not used.
	Client eventsource.Client

	// Policy makes the policy of each stream from the protocol version in force,
	// which is empty before the handshake, and the stream's role. Nil means
	// [ForVersion].
	Policy func(version string, role Role) policy.Policy

	// DisableStandby turns the standby stream off. Calls work without it, but
	// messages of the server that are not answers are not received.
	DisableStandby bool

	// OnPosition, if not nil, is given the position of a stream after each event that
	// changes it. If you store the Position, a later process can continue the stream
	// with [Transport.Resume].
	OnPosition func(Position)

	// OnStandbyEnd, if not nil, is called once at the end of every standby stream with
	// the reason: [ErrNotOffered] if the server does not offer one, which is common
	// and not a fault; mcp.ErrConnectionClosed, or an error that is
	// mcp.ErrSessionMissing, if the connection is over; nil if the server asked the
	// client to stop, with status 204; otherwise the error of the stream. Calls are
	// not affected. After policy.ErrExhausted the stream is opened again as soon as
	// the server accepts a message.
	OnStandbyEnd func(error)

	// OnSkip, if not nil, is told about data that nobody can use: data that is not a
	// JSON-RPC message, or an answer that nobody is waiting for. It has been skipped
	// and did no harm.
	OnSkip func(error)
}

var _ mcp.Transport = (*Transport)(nil)

// Connect returns a connection for one session. It sends nothing: the handshake is
// the caller's first message. Only the values of ctx are used, so a connection
// outlives the deadline for making it; it ends with Close. The error is about the
// Endpoint.
func (t *Transport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (t *Transport) connect(ctx context.Context) (*connection, error) {
	endpoint, err := http.NewRequest(http.MethodGet, t.Endpoint, nil)
	if err != nil || endpoint.URL.Host == "" {
		return nil, errors.New("mcptransport: Transport.Endpoint is not a valid URL") // which may hold secrets
	}
	c := &connection{
		transport: *t,
		endpoint:  endpoint,
		incoming:  make(chan jsonrpc.Message),
		calls:     make(map[jsonrpc.ID]*call),
	}
	c.ctx, c.end = context.WithCancelCause(context.WithoutCancel(ctx))

	c.http = *http.DefaultClient
	if t.Client.HTTPClient != nil {
		c.http = *t.Client.HTTPClient
	}
	c.http.Timeout = 0 // it would bound the bodies too, and so the calls
	if c.http.CheckRedirect == nil {
		c.http.CheckRedirect = sameHost
	}

	c.streams = t.Client
	c.streams.Prepare = c.prepare
	return c, nil
}

// sameHost follows redirects, except those that lead to another host, which must not
// learn the session ID, and those that would turn the POST of a message into a GET.
// Such a redirect is the answer itself, and is refused like any other.
func sameHost(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 10 || req.Method != first.Method || req.URL.Host != first.URL.Host || req.URL.Scheme != first.URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}
