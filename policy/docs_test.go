package policy_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprise-sse/reprise/policy"
)

// document returns docs/policies.md.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The worked timelines of docs/policies.md, without the random share.
func TestDocumentedTimelines(t *testing.T) {
	text := document(t)
	resilient := func() policy.Rules { r := policy.Resilient(); r.Jitter = -1; return r }
	for _, tt := range []struct {
		rules, happens string
		policy         policy.Policy
		turns          []turn
	}{
		{"zero", "nobody there", plain(nil), failed.times(7)},
		{"zero", "a message, then an end, each time", plain(nil), ended.brings(1).times(3)},
		{"zero", "accepted, then closed at once, each time", plain(nil), ended.times(6)},
		{"zero", "a proxy cuts the silent stream after 60 s, each time", plain(nil), dropped.lasts(time.Minute).times(3)},
		{"zero", "5 failures, 10 minutes of health, then nobody there", plain(nil), script(failed.times(5), dropped.lasts(10*time.Minute), failed.times(3))},
		{"zero", "`retry: 5000` and a message, then nobody there", plain(nil), script(ended.brings(1).retry(5*time.Second), failed.times(5))},
		{"zero", "`retry: 60000` and an end, each time", plain(nil), ended.retry(time.Minute).times(3)},
		{"zero", "`retry: 0` and an end, each time", plain(nil), ended.retry(0).times(5)},
		{"zero", "two failures, a restart by the caller, a failure", plain(nil), script(failed.times(2), restarted, failed)},
		{"`PollAfter: -1`", "`retry: 2000` and an end, each time", plain(func(r *policy.Rules) { r.PollAfter = -1 }), ended.retry(2 * time.Second).times(4)},
		{"`PollAfter: -1`", "the same twice, then nobody there", plain(func(r *policy.Rules) { r.PollAfter = -1 }), script(ended.retry(2*time.Second).times(2), failed.times(4))},
		{"`MaxFruitless: 3`", "nobody there", plain(func(r *policy.Rules) { r.MaxFruitless = 3 }), failed.times(9)},
		{"`Budget: time.Minute`", "nobody there, each dial takes 2 s", minute(), failed.takes(2 * time.Second).times(9)},
		{"`Budget: time.Minute`", "`retry: 86400000` and an end", minute(), script(ended.retry(24 * time.Hour))},
		{"`Budget: time.Minute`", "connected, then silence", minute(), script(dropped, silent)},
		{"`GiveUpAfter: time.Minute`", "connected, then silence", plain(func(r *policy.Rules) { r.GiveUpAfter = time.Minute }), script(silent)},
		{"`GiveUpAfter: time.Minute`", "a message after 10 s, then keep-alives only", plain(func(r *policy.Rules) { r.GiveUpAfter = time.Minute }), script(silent.brings(1).isQuiet(forever))},
		{"`GiveUpAfter: time.Minute`", "nobody there, each dial takes 2 s", plain(func(r *policy.Rules) { r.GiveUpAfter = time.Minute }), failed.takes(2 * time.Second).times(9)},
		{"`Resilient`", "503 three times, the second with `Retry-After: 20`", resilient(), script(rejected(503), rejected(503).asksFor(20*time.Second), rejected(503))},
		{"`MCPCall`", "an ID and `retry: 500`, an end; then 503 three times", call(), script(ended.setsID("1").retry(500*time.Millisecond), rejected(503).times(3))},
		{"`MCPCall`", "an end before any ID", call(), script(ended)},
		{"`MCPListen`", "closed at once, each time", listen(), ended.times(20)},
	} {
		var waits []string
		p := newPlayer(tt.policy)
		end := ", …"
		for _, turn := range tt.turns {
			d := p.play(turn)
			if reason, stopped := d.Stopped(); stopped {
				end = fmt.Sprintf("; %v", reason)
				break
			}
			waits = append(waits, p.waited.String())
		}
		row := fmt.Sprintf("| %s | %s | %s |", tt.rules, tt.happens, strings.TrimPrefix(strings.Join(waits, ", ")+end, "; "))
		if !strings.Contains(text, row+"\n") {
			t.Errorf("docs/policies.md lacks the row\n%s", row)
		}
	}
}

// The table of the fields in docs/policies.md names every field, and so does that
// of the presets.
func TestDocumentedFields(t *testing.T) {
	text := document(t)
	names := []string{"WHATWG", "Resilient", "Never", "MCPCall", "MCPListen"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[policy.Rules]()) {
		names = append(names, field.Name)
	}
	for _, name := range names {
		if !strings.Contains(text, "\n| `"+name+"` |") {
			t.Errorf("docs/policies.md has no row for %s", name)
		}
	}
}
