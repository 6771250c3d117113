package eventsource

// An Event is a dispatched event: what a browser hands to a listener as a
// MessageEvent (HTML §9.2.6). Its strings are the receiver's to keep.
type Event struct {
	// Type is the event field, or "message" if the server named none. It is
	// never empty.
	Type string

	// Data is the data fields joined with line feeds. It may be empty.
	Data string

	// LastEventID is the last event ID in force when the event was dispatched: the
	// server's newest id field, in this event or before it; empty if there was
	// none. Store it to resume from here.
	LastEventID string
}

// A RawEvent is an [Event] whose parts are views of the decoder's memory,
// valid until the next call on the decoder. Copy what you need for longer.
type RawEvent struct {
	Type, Data, LastEventID []byte
}
