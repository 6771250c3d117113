package scenario

import "fmt"

// A Check complains of what it finds wrong in a record, whatever the scenario.
type Check func(*Record, *Complaints)

// Complaints are the ways in which something is broken.
type Complaints []string

// Add adds a complaint.
func (c *Complaints) Add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// Sound: the scenario has come to its end. Without that nothing else can be
// checked.
func Sound(r *Record, c *Complaints) {
	switch {
	case r.Deadlock != "":
		c.Add("%s", r.Deadlock)
	case r.Hung:
		c.Add("the stream does not end")
	case r.Runaway:
		c.Add("there is no end of requests")
	case r.Panicked != nil && r.Panicked != any(ErrPanic):
		c.Add("panic: %v", r.Panicked)
	}
}

func orDefault[T comparable](value, byDefault T) T {
	if value == *new(T) {
		return byDefault
	}
	return value
}
