package fuzz_test

import (
	"strings"
	"testing"

	"github.com/reprise-sse/reprise/internal/scenario"
)

// checks are those of the guarantees that one run of a scenario can show.
var checks = map[string][]scenario.Check{
	"G1":  {scenario.NeverEarly},
	"G2":  {scenario.Exactly},
	"G3":  {scenario.WithinLimits, scenario.WithinBudget, scenario.WithinPatience},
	"G4":  {scenario.NoFreeResets},
	"G5":  {scenario.NothingForgotten},
	"G6":  {scenario.OneEnd},
	"G7":  {scenario.NothingLeft},
	"G8":  {scenario.OneAtATime},
	"G10": {scenario.BoundedMemory},
	"G12": {scenario.EverythingVisible},
}

// FuzzStream makes a server, a policy and a caller of any bytes, runs them through
// the whole engine in a bubble of fake time, and checks what the guarantees say of
// each run.
func FuzzStream(f *testing.F) {
	for seed := range uint32(256) {
		script := make([]byte, 300)
		x := seed*2654435761 + 12345
		for i := range script {
			x = x*1664525 + 1013904223
			script[i] = byte(x >> 24)
		}
		f.Add(script)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, script []byte) {
		s := scenario.Generate(&choices{script}, scenario.Profile{})
		r := scenario.Play(t, s)[0]
		var broken scenario.Complaints
		if scenario.Sound(r, &broken); len(broken) == 0 {
			for guarantee, list := range checks {
				for _, check := range list {
					var c scenario.Complaints
					check(r, &c)
					for _, complaint := range c {
						broken.Add("%s: %s", guarantee, complaint)
					}
				}
			}
		}
		if len(broken) > 0 {
			t.Errorf("%s\n\nin the scenario\n\n%#v\n\nWhat happened:\n%s", strings.Join(broken, "\n"), s, r.Text())
		}
	})
}

// choices are made by the bytes of a script, by one byte each if it has as many
// values as there are to choose from. Once all bytes are used each choice is the first.
type choices struct{ script []byte }

func (c *choices) IntN(n int) int {
	value := 0
	for most := 1; most < n; most <<= 8 {
		value <<= 8
		if len(c.script) > 0 {
			value |= int(c.script[0])
			c.script = c.script[1:]
		}
	}
	return value % n
}

func (c *choices) Float64() float64 { return float64(c.IntN(256)) / 256 }
