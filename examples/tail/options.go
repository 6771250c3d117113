package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/reprise-sse/reprise/policy"
)

// options is what the command line says, checked.
type options struct {
	url         string // empty: the demo
	json        bool
	header      http.Header
	lastEventID string
	idle        time.Duration
	policy      policy.Policy
}

const usage = `usage: tail [flags] URL    follow the event stream at URL
       tail [-json]        watch a demo: 15 seconds, no network needed

flags:
`

// parse reads the command line. It reports errors to the user, on stderr, before it
// returns them; flag.ErrHelp means that the user asked for the usage.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{header: http.Header{}}
	var rules policy.Rules
	var resilient, never bool

	flags := flag.NewFlagSet("tail", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.json, "json", false, "print each event as a JSON object with type, data, id, time")
	flags.Func("header", "send this header, as `'Name: value'`; may be given several times", func(s string) error {
		name, value, ok := strings.Cut(s, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return errors.New("want 'Name: value'")
		}
		o.header.Add(name, strings.TrimSpace(value))
		return nil
	})
	flags.StringVar(&o.lastEventID, "last-event-id", "", "resume after the event with this `ID`")
	flags.DurationVar(&o.idle, "idle", 0, "reconnect after a silence of this length; 0: never")
	flags.DurationVar(&rules.Delay, "delay", 3*time.Second, "wait this long before reconnecting, unless the server says how long")
	flags.DurationVar(&rules.GiveUpAfter, "budget", 0, "give up rather than go without a message for longer than this; 0: no limit")
	flags.IntVar(&rules.MaxFruitless, "max-fruitless", 0, "give up after `n` reconnections in a row that brought nothing; 0: no limit")
	flags.BoolVar(&resilient, "resilient", false, "ride out the temporary refusals, 429 and 503 among them")
	flags.BoolVar(&never, "never", false, "do not reconnect at all")
	if err := flags.Parse(args); err != nil {
		return options{}, err // reported by the flag set
	}

	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if resilient {
		rules.Retryable = policy.Resilient().Retryable
	}
	o.url, o.policy = flags.Arg(0), rules
	if never {
		o.policy = policy.Never()
	}
	if problem := check(flags, set, o, rules); problem != "" {
		fmt.Fprintf(stderr, "tail: %s\n", problem)
		flags.Usage()
		return options{}, errors.New(problem)
	}
	return o, nil
}

// check returns what is wrong with a command line whose flags have been parsed, or
// the empty string.
func check(flags *flag.FlagSet, set map[string]bool, o options, rules policy.Rules) string {
	if flags.NArg() > 1 {
		return "more than one URL (flags go before it)"
	}
	if o.url == "" {
		for name := range set {
			if name != "json" {
				return "-" + name + " needs a URL; the demo has settings of its own"
			}
		}
	}
	if set["never"] {
		for _, name := range []string{"budget", "max-fruitless", "delay", "resilient"} {
			if set[name] {
				return "-never and -" + name + " contradict each other"
			}
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"delay", rules.Delay}, {"budget", rules.GiveUpAfter}, {"idle", o.idle}} {
		if d.value < 0 {
			return "-" + d.name + " is negative"
		}
	}
	return ""
}
