package vectors

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// About says where a vector of wpt.jsonl comes from.
type About struct {
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	Suite      string            `json:"suite"`  // wpt, peer or derived
	Repo       string            `json:"repo"`   // whose test it was
	Source     string            `json:"source"` // where in it
	Group      string            `json:"group"`
	RequiredBy string            `json:"required_by"` // whatwg, fetch, mimesniff, wpt, proposal or library
	Why        string            `json:"why"`
	Also       []string          `json:"also"`     // who else tests it
	Deviates   map[string]string `json:"deviates"` // which library behaves differently, and how
}

func (a About) check() error {
	return first(
		oneOf("kind", a.Kind, "format", "network"),
		oneOf("suite", a.Suite, "wpt", "peer", "derived"),
		oneOf("required_by", a.RequiredBy, "whatwg", "fetch", "mimesniff", "wpt", "proposal", "library"),
	)
}

// A Format vector is a byte stream and its events. However it is cut, the result
// is the same.
type Format struct {
	About
	Chunks [][]byte // as the source cuts it

	// InitialLastEventID is carried into the stream; empty for most.
	InitialLastEventID string

	Events []Event

	// Retry is the reconnection time after the end, if HasRetry is set. With AnyRetry it
	// may be anything that is not negative, or not be set.
	Retry              time.Duration
	HasRetry, AnyRetry bool

	LastEventID string // what a reconnection would send; empty: no header
}

// A Network vector is a server script and how a client must behave with it.
type Network struct {
	About
	URL     string // a path; or "{origin2}/path", under another host name; or an absolute URL
	Options Options
	Actions []Action
	Server  []Answer // to each request, in order

	// Trace is what the caller or its observer sees; AcceptAlso has traces that are
	// acceptable too.
	Trace      []Report
	AcceptAlso [][]Report

	// OrderlyEndOK allows an end without an error instead of the last report, an error
	// with state closed.
	OrderlyEndOK bool

	FinalState    string // closed or connecting
	RequestsTotal int
	Delays        []Delay
	Quiet         time.Duration // nothing more happens for this long
	Construct     Construct
	Reports       Reports
}

// Options are the client's settings. A zero value means that it is not set.
type Options struct {
	Method, Body     string
	Headers          map[string]string
	LastEventID      *string
	MaxEventBytes    int
	ReadTimeout      time.Duration
	ReconnectionTime time.Duration
}

// An Action is something that the caller does.
type Action struct {
	On    string        // start, open, event or error
	Nth   int           // from 1; 0 for start
	After time.Duration // zero: at once, inside the report
	Do    string        // close: the caller leaves; cancel: the context is cancelled
}

// An Answer is the server's answer to one request.
type Answer struct {
	Expect  *Expect // of the request; nil: anything
	Delay   time.Duration
	Drop    bool // the connection is closed before any byte; the fields below do not count
	Status  int
	Headers [][2]string // only what frames the body is added
	Chunks  []Part
	End     string // eof: clean; open: held until the client leaves; abort: broken
	Host    string // origin2: the request must come to the second host name
}

// A Part of a body is flushed separately, after a pause.
type Part struct {
	Wait  time.Duration
	Bytes []byte
}

// Expect is what a request must look like; empty fields allow anything.
type Expect struct {
	Method, Path, Body string

	// Each header must be exactly one line with these bytes, or absent if nil.
	Headers map[string]*string
}

// A Report is one entry of a trace.
type Report struct {
	T     string // open, event, error or closed
	State string // of an error: connecting (it will come back) or closed
	Event Event
}

// A Delay bounds the time from the end of an answer to the next request.
type Delay struct {
	BeforeRequest int // from 2
	Min           time.Duration
	Max           time.Duration // only with jitter and floors off; zero means none
}

// Construct says how to make a client that has no server.
type Construct struct {
	Error     bool   // constructing it, or the first call, must fail
	OrTrace   bool   // or it must give the trace instead
	FromBytes []byte // it reads these bytes
}

// Reports are facts that the client should be able to report.
type Reports struct {
	Status          int               `json:"status"`
	ResponseHeaders map[string]string `json:"response_headers"`
	URL             string            `json:"url"`
	FinalURL        string            `json:"final_url"`
}

// Formats returns the format items of wpt.jsonl.
var Formats = load("wpt.jsonl", func(line []byte, all *[]Format) error {
	kind, err := kindOf(line)
	if err != nil || kind != "format" {
		return err
	}
	v, err := decodeFormat(line)
	*all = append(*all, v)
	return err
})

// Networks returns the network items of wpt.jsonl.
var Networks = load("wpt.jsonl", func(line []byte, all *[]Network) error {
	kind, err := kindOf(line)
	if err != nil || kind != "network" {
		return err
	}
	v, err := decodeNetwork(line)
	*all = append(*all, v)
	return err
})

func kindOf(line []byte) (string, error) {
	var k struct{ Kind string }
	if err := json.Unmarshal(line, &k); err != nil {
		return "", err
	}
	return k.Kind, oneOf("kind", k.Kind, "format", "network")
}

// text is a string, {"repeat": s, "times": n}, or a list of both.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		return json.Unmarshal(b, (*string)(t))
	case '[':
		var list []text
		if err := json.Unmarshal(b, &list); err != nil {
			return err
		}
		var all strings.Builder
		for _, s := range list {
			all.WriteString(string(s))
		}
		*t = text(all.String())
		return nil
	default:
		var r struct {
			Repeat string `json:"repeat"`
			Times  int    `json:"times"`
		}
		if err := strict(b, &r); err != nil {
			return err
		}
		if r.Times <= 0 {
			return errors.New("a text is repeated no times")
		}
		*t = text(strings.Repeat(r.Repeat, r.Times))
		return nil
	}
}

type wptEvent struct {
	Type        string `json:"type"`
	Data        text   `json:"data"`
	LastEventID string `json:"lastEventId"`
}

func (e wptEvent) event() Event {
	return Event{Type: e.Type, Data: string(e.Data), LastEventID: e.LastEventID}
}

func decodeFormat(line []byte) (Format, error) {
	var l struct {
		About
		Encoding string `json:"encoding"`
		Chunks   []text `json:"chunks"`
		Splits   string `json:"splits"`
		Initial  struct {
			LastEventID string `json:"last_event_id"`
		} `json:"initial"`
		Events    []wptEvent `json:"events"`
		Reconnect struct {
			RetryMs     json.RawMessage `json:"retry_ms"`
			LastEventID string          `json:"last_event_id"`
		} `json:"reconnect"`
	}
	if err := strict(line, &l); err != nil {
		return Format{}, err
	}
	if err := first(l.check(), oneOf("encoding", l.Encoding, "", "base64"), oneOf("splits", l.Splits, "any")); err != nil {
		return Format{}, err
	}
	v := Format{About: l.About, InitialLastEventID: l.Initial.LastEventID, LastEventID: l.Reconnect.LastEventID}
	for _, c := range l.Chunks {
		b := []byte(c)
		if l.Encoding == "base64" {
			var err error
			if b, err = base64.StdEncoding.DecodeString(string(c)); err != nil {
				return Format{}, err
			}
		}
		v.Chunks = append(v.Chunks, b)
	}
	for _, e := range l.Events {
		v.Events = append(v.Events, e.event())
	}
	switch raw := string(l.Reconnect.RetryMs); raw {
	case "null":
	case `"any"`:
		v.AnyRetry = true
	default:
		var ms int64
		if err := json.Unmarshal([]byte(raw), &ms); err != nil {
			return Format{}, fmt.Errorf("retry_ms: %w", err)
		}
		v.Retry, v.HasRetry = time.Duration(ms)*time.Millisecond, true
	}
	return v, nil
}

type milliseconds int64

func (ms milliseconds) duration() time.Duration { return time.Duration(ms) * time.Millisecond }

type wptReport struct {
	T     string `json:"t"`
	State string `json:"state"`
	wptEvent
}

func reports(list []wptReport) ([]Report, error) {
	var out []Report
	for _, r := range list {
		err := oneOf("t", r.T, "open", "event", "error", "closed")
		if r.T == "error" {
			err = oneOf("state", r.State, "connecting", "closed")
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Report{T: r.T, State: r.State, Event: r.event()})
	}
	return out, nil
}

type wptAnswer struct {
	Expect *struct {
		Method  string             `json:"method"`
		Path    string             `json:"path"`
		Body    string             `json:"body"`
		Headers map[string]*string `json:"headers"`
	} `json:"expect"`
	DelayMs milliseconds      `json:"delay_ms"`
	Drop    bool              `json:"drop"`
	Status  int               `json:"status"`
	Headers [][2]string       `json:"headers"`
	Chunks  []json.RawMessage `json:"chunks"`
	End     string            `json:"end"`
	Host    string            `json:"host"`
}

func (a wptAnswer) answer() (Answer, error) {
	v := Answer{
		Expect: (*Expect)(a.Expect), Delay: a.DelayMs.duration(),
		Drop: a.Drop, Status: a.Status, Headers: a.Headers, End: a.End, Host: a.Host,
	}
	if a.Drop {
		return v, nil
	}
	if err := first(oneOf("end", a.End, "eof", "open", "abort"), oneOf("host", a.Host, "", "origin2")); err != nil {
		return v, err
	}
	var wait time.Duration
	for _, raw := range a.Chunks {
		if raw[0] == '{' {
			var w struct {
				WaitMs milliseconds `json:"wait_ms"`
			}
			if err := strict(raw, &w); err != nil {
				return v, err
			}
			wait += w.WaitMs.duration()
			continue
		}
		var t text
		if err := json.Unmarshal(raw, &t); err != nil {
			return v, err
		}
		v.Chunks = append(v.Chunks, Part{Wait: wait, Bytes: []byte(t)})
		wait = 0
	}
	if wait != 0 {
		return v, errors.New("a pause with no chunk after it")
	}
	return v, nil
}

func decodeNetwork(line []byte) (Network, error) {
	var l struct {
		About
		Client struct {
			URL     string `json:"url"`
			Options struct {
				Method             string            `json:"method"`
				Body               string            `json:"body"`
				Headers            map[string]string `json:"headers"`
				LastEventID        *string           `json:"last_event_id"`
				MaxEventBytes      int               `json:"max_event_bytes"`
				ReadTimeoutMs      milliseconds      `json:"read_timeout_ms"`
				ReconnectionTimeMs milliseconds      `json:"reconnection_time_ms"`
			} `json:"options"`
			Do []struct {
				On      string       `json:"on"`
				Nth     int          `json:"nth"`
				AfterMs milliseconds `json:"after_ms"`
				Do      string       `json:"do"`
			} `json:"do"`
		} `json:"client"`
		Server        []wptAnswer   `json:"server"`
		Trace         []wptReport   `json:"trace"`
		AcceptAlso    [][]wptReport `json:"accept_also"`
		OrderlyEndOK  bool          `json:"orderly_end_ok"`
		FinalState    string        `json:"final_state"`
		RequestsTotal int           `json:"requests_total"`
		Delays        []struct {
			BeforeRequest int          `json:"before_request"`
			MinMs         milliseconds `json:"min_ms"`
			MaxMs         milliseconds `json:"max_ms"`
			Note          string       `json:"note"`
		} `json:"delays"`
		QuietMs   milliseconds `json:"quiet_ms"`
		Construct string       `json:"construct"`
		Reports   Reports      `json:"reports"`
	}
	if err := strict(line, &l); err != nil {
		return Network{}, err
	}
	if err := first(l.check(), oneOf("final_state", l.FinalState, "closed", "connecting")); err != nil {
		return Network{}, err
	}
	o := l.Client.Options
	v := Network{
		About: l.About,
		URL:   l.Client.URL,
		Options: Options{
			Method: o.Method, Body: o.Body, Headers: o.Headers, LastEventID: o.LastEventID,
			MaxEventBytes: o.MaxEventBytes,
			ReadTimeout:   o.ReadTimeoutMs.duration(), ReconnectionTime: o.ReconnectionTimeMs.duration(),
		},
		OrderlyEndOK: l.OrderlyEndOK, FinalState: l.FinalState, RequestsTotal: l.RequestsTotal,
		Quiet: l.QuietMs.duration(), Reports: l.Reports,
	}
	if v.URL == "" {
		v.URL = "/stream"
	}
	for _, d := range l.Client.Do {
		if err := first(oneOf("on", d.On, "start", "open", "event", "error"), oneOf("do", d.Do, "close", "cancel")); err != nil {
			return Network{}, err
		}
		v.Actions = append(v.Actions, Action{On: d.On, Nth: d.Nth, After: d.AfterMs.duration(), Do: d.Do})
	}
	for i, a := range l.Server {
		answer, err := a.answer()
		if err != nil {
			return Network{}, fmt.Errorf("answer %d: %w", i, err)
		}
		v.Server = append(v.Server, answer)
	}
	var err error
	if v.Trace, err = reports(l.Trace); err != nil {
		return Network{}, err
	}
	for _, list := range l.AcceptAlso {
		also, err := reports(list)
		if err != nil {
			return Network{}, err
		}
		v.AcceptAlso = append(v.AcceptAlso, also)
	}
	for _, d := range l.Delays {
		v.Delays = append(v.Delays, Delay{BeforeRequest: d.BeforeRequest, Min: d.MinMs.duration(), Max: d.MaxMs.duration()})
	}
	const fromBytes = "from-bytes: "
	switch {
	case l.Construct == "":
	case l.Construct == "error":
		v.Construct.Error = true
	case l.Construct == "error-or-trace":
		v.Construct.Error, v.Construct.OrTrace = true, true
	case strings.HasPrefix(l.Construct, fromBytes):
		v.Construct.FromBytes = []byte(strings.ReplaceAll(strings.TrimPrefix(l.Construct, fromBytes), `\n`, "\n"))
	default:
		return Network{}, fmt.Errorf("construct is %q, which is not known", l.Construct)
	}
	return v, nil
}
