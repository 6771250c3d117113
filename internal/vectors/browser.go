package vectors

import (
	"encoding/base64"
	"fmt"
)

// A Browser vector is a server script and how a real browser behaved with it.
type Browser struct {
	ID   string
	Rule string // the rule of the standard that it is about; empty in generated ones
	Wire string // what the server sends, for people; empty in generated ones

	// Connections are what the server answers, one after the other. After the
	// last one it answers 204.
	Connections []Connection

	Events     []Event
	Reconnects []Reconnect

	// LastEventID is the header of the last reconnection; nil if there was none.
	LastEventID *string

	Outcome Outcome
	Opens   int      // how often the stream opened
	Agree   []string // who else gives the same answer: whatwg, firefox, webkit
}

// An Outcome is what became of a browser's stream.
type Outcome string

const (
	Closed  Outcome = "closed"  // it came back and met the 204 after the script
	Waiting Outcome = "waiting" // not back after 5 s
	Failed  Outcome = "failed"  // it gave up inside the script
)

// A Connection is the answer to one request.
type Connection struct {
	Chunks [][]byte // of the body, one for each flush
	Cut    bool     // the connection breaks inside the body

	// Status is that of the response, or -1 if the connection is closed without a
	// response.
	Status int

	// Headers are the response's header lines in order, without those that frame the
	// body.
	Headers []string

	Body Framing
}

// A Framing is how the end of a body is marked.
type Framing string

const (
	Chunked    Framing = "chunked"
	Length     Framing = "length" // Content-Length
	UntilClose Framing = "close"  // by the end of the connection; Headers may have a different length
	NoBody     Framing = "none"
)

// A Reconnect is a request after the first.
type Reconnect struct {
	LastEventID *string // as received: outer spaces and tabs are lost; nil if absent
	DelayMs     int     // as measured
	RetryMs     int     // the reconnection time in force, computed from DelayMs; 0 may show as up to 10
	Path        string  // of the request, if it is not that of the first
}

// BrowserNamed returns the hand-picked streams, each for one rule of the standard.
var BrowserNamed = load("browser-named.jsonl.gz", decodeBrowser)

// BrowserGenerated returns the streams that were generated from a grammar of pitfalls.
var BrowserGenerated = load("browser-generated.jsonl.gz", decodeBrowser)

// BrowserHTTP returns the scripts about statuses, types, redirects and network
// errors.
var BrowserHTTP = load("browser-http.jsonl", decodeBrowser)

type browserHead struct {
	Status      *int     `json:"status"`
	ContentType *string  `json:"contentType"`
	Location    string   `json:"location"`
	Headers     []string `json:"headers"`
	Body        string   `json:"body"`
}

type browserConnection struct {
	Chunks []string     `json:"chunks"`
	End    string       `json:"end"`
	Head   *browserHead `json:"head"`
}

type browserLine struct {
	browserConnection
	ID     string              `json:"id"`
	Seed   int                 `json:"seed"`
	Rule   string              `json:"rule"`
	Wire   string              `json:"wire"`
	Then   []browserConnection `json:"then"`
	Events []struct {
		Conn        int    `json:"conn"`
		Type        string `json:"type"`
		Data        string `json:"data"`
		LastEventID string `json:"lastEventId"`
	} `json:"events"`
	Reconnects []struct {
		LastEventID *string `json:"lastEventID"`
		DelayMs     int     `json:"delayMs"`
		RetryMs     int     `json:"retryMs"`
		Path        string  `json:"path"`
	} `json:"reconnects"`
	ReconnectLastEventID *string  `json:"reconnectLastEventID"`
	Outcome              string   `json:"outcome"`
	Opens                int      `json:"opens"`
	Agree                []string `json:"agree"`
}

func decodeBrowser(line []byte, all *[]Browser) error {
	var l browserLine
	if err := strict(line, &l); err != nil {
		return err
	}
	if err := oneOf("outcome", l.Outcome, string(Closed), string(Waiting), string(Failed)); err != nil {
		return err
	}
	for _, who := range l.Agree {
		if err := oneOf("agree", who, "whatwg", "firefox", "webkit"); err != nil {
			return err
		}
	}
	v := Browser{
		ID: l.ID, Rule: l.Rule, Wire: l.Wire,
		LastEventID: l.ReconnectLastEventID,
		Outcome:     Outcome(l.Outcome), Opens: l.Opens, Agree: l.Agree,
	}
	for i, c := range append([]browserConnection{l.browserConnection}, l.Then...) {
		connection, err := c.connection()
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		v.Connections = append(v.Connections, connection)
	}
	for _, e := range l.Events {
		v.Events = append(v.Events, Event{e.Conn, e.Type, e.Data, e.LastEventID})
	}
	for _, r := range l.Reconnects {
		v.Reconnects = append(v.Reconnects, Reconnect(r))
	}
	*all = append(*all, v)
	return nil
}

func (c browserConnection) connection() (Connection, error) {
	if err := oneOf("end", c.End, "", "cut"); err != nil {
		return Connection{}, err
	}
	v := Connection{Cut: c.End == "cut", Status: 200, Body: Chunked}
	for _, s := range c.Chunks {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return Connection{}, err
		}
		v.Chunks = append(v.Chunks, b)
	}
	contentType := "text/event-stream"
	if h := c.Head; h != nil {
		if h.Status != nil {
			v.Status = *h.Status
		}
		if h.ContentType != nil {
			contentType = *h.ContentType
		}
		if h.Location != "" {
			v.Headers = append(v.Headers, "Location: "+h.Location)
		}
		if h.Body != "" {
			v.Body = Framing(h.Body)
		}
		if err := oneOf("body", string(v.Body), string(Chunked), string(Length), string(UntilClose), string(NoBody)); err != nil {
			return Connection{}, err
		}
	}
	if contentType != "" {
		v.Headers = append(v.Headers, "Content-Type: "+contentType)
	}
	if c.Head != nil {
		v.Headers = append(v.Headers, c.Head.Headers...)
	}
	return v, nil
}
