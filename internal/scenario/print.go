package scenario

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The names of constants, as in the source.
var names = map[reflect.Type][]string{
	reflect.TypeFor[Failure](): {"None", "Refused", "Permanent", "Unprepared", "NeverAnswers"},
	reflect.TypeFor[End]():     {"Clean", "Cut", "Hold"},
	reflect.TypeFor[Verb]():    {"Reconnect", "Stop", "GiveUp", "Undecided"},
	reflect.TypeFor[Payload](): {"Empty", "Once", "Repeated"},
	reflect.TypeFor[Adopt]():   {"Request", "Resume", "Alone"},
	reflect.TypeFor[Deed]():    {"Nothing", "Cancel", "Restart", "Leave", "Panic", "Exit"},
	reflect.TypeFor[Point](): {
		"Start", "Prepare", "Connect", "RoundTrip", "Open", "Comment", "Retry", "Body",
		"AttemptEnd", "Decide", "Wait", "Done",
	},
}

func name(constant any) string {
	v := reflect.ValueOf(constant)
	if all := names[v.Type()]; v.Uint() < uint64(len(all)) {
		return all[v.Uint()]
	}
	return fmt.Sprintf("%s(%d)", v.Type().Name(), v.Uint())
}

// String returns the name of the constant.
func (f Failure) String() string { return name(f) }

// String returns the name of the constant.
func (e End) String() string { return name(e) }

// String returns the name of the constant.
func (v Verb) String() string { return name(v) }

// String returns the name of the constant.
func (p Payload) String() string { return name(p) }

// String returns the name of the constant.
func (a Adopt) String() string { return name(a) }

// String returns the name of the constant.
func (d Deed) String() string { return name(d) }

// String returns the name of the constant.
func (p Point) String() string { return name(p) }

// GoString returns the scenario as a Go expression, for a file that imports this package,
// policy and time. It leaves out zero values.
func (s Scenario) GoString() string {
	var b strings.Builder
	write(&b, reflect.ValueOf(s), "", true)
	return b.String()
}

// write writes a value as Go source. Inside a list it leaves out the type.
func write(b *strings.Builder, v reflect.Value, indent string, typed bool) {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		b.WriteString(duration(time.Duration(v.Int())))
	case names[v.Type()] != nil:
		b.WriteString("scenario." + name(v.Interface()))
	case v.Kind() == reflect.Pointer:
		b.WriteString("scenario.Ptr(")
		write(b, v.Elem(), indent, true)
		b.WriteString(")")
	case v.Kind() == reflect.String:
		text := v.String()
		if n := len(text); n > 100 && strings.Count(text, text[n-1:]) > n-50 {
			// This is a long run of one byte, as in an event that is too large.
			rest := strings.TrimRight(text, text[n-1:])
			fmt.Fprintf(b, "%s + strings.Repeat(%s, %d)", strconv.Quote(rest), strconv.Quote(text[n-1:]), n-len(rest))
			return
		}
		b.WriteString(strconv.Quote(text))
	case v.Kind() == reflect.Struct:
		if typed {
			b.WriteString(v.Type().String())
		}
		open := "{"
		flat := flat(v)
		for i := range v.NumField() {
			field := v.Field(i)
			if field.IsZero() || field.Kind() == reflect.Func {
				continue
			}
			if flat {
				b.WriteString(open)
				open = ", "
			} else {
				b.WriteString(open + "\n\t" + indent)
				open = ","
			}
			b.WriteString(v.Type().Field(i).Name + ": ")
			write(b, field, indent+"\t", true)
		}
		switch {
		case open == "{":
			b.WriteString("{}")
		case flat:
			b.WriteString("}")
		default:
			b.WriteString(",\n" + indent + "}")
		}
	case v.Kind() == reflect.Slice:
		b.WriteString(v.Type().String() + "{")
		for i := range v.Len() {
			b.WriteString("\n\t" + indent)
			write(b, v.Index(i), indent+"\t", false)
			b.WriteString(",")
		}
		if v.Len() > 0 {
			b.WriteString("\n" + indent)
		}
		b.WriteString("}")
	default:
		fmt.Fprintf(b, "%#v", v.Interface())
	}
}

// flat reports whether a struct is written on one line.
func flat(v reflect.Value) bool {
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.Slice:
			if field.Len() > 0 {
				return false
			}
		case reflect.Struct:
			if !field.IsZero() {
				return false
			}
		}
	}
	return true
}

// duration writes a duration in the largest unit of which it is a whole number.
func duration(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{
		{"time.Hour", time.Hour},
		{"time.Minute", time.Minute},
		{"time.Second", time.Second},
		{"time.Millisecond", time.Millisecond},
		{"time.Microsecond", time.Microsecond},
	} {
		if d != 0 && d%unit.d == 0 {
			if d == unit.d {
				return unit.name
			}
			return fmt.Sprintf("%d * %s", d/unit.d, unit.name)
		}
	}
	return strconv.FormatInt(int64(d), 10)
}

// Ptr returns a pointer to a copy of v, which a literal cannot express.
func Ptr[T any](v T) *T { return &v }
