package scenario

import "fmt"

// A Check complains of each way in which a record breaks a guarantee, whatever the
// scenario was.
type Check func(*Record, *Complaints)

// Complaints are the ways in which something is broken.
type Complaints []string

// Add adds a complaint.
func (c *Complaints) Add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

// Sound checks that the scenario has come to its end. If it has not, nothing else can be
// checked.
func Sound(r *Record, c *Complaints) {
	switch {
	case r.Deadlock != "":
		c.Add("%s", r.Deadlock)
	case r.Hung:
		c.Add("the stream does not end")
	case r.Runaway:
		c.Add("the requests do not end")
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
