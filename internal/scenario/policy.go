package scenario

import (
	"github.com/reprise-sse/reprise/policy"
)

// inForce returns the Policy for a Client.
func (p Policy) inForce() policy.Policy {
	switch p.Preset {
	case "WHATWG":
		return policy.WHATWG()
	case "Resilient":
		return policy.Resilient()
	case "Never":
		return policy.Never()
	case "MCPCall":
		return policy.MCPCall()
	case "MCPListen":
		return policy.MCPListen()
	case "Rules":
		return p.RulesInForce()
	}
	return policy.Constructor(func() policy.Reconnector {
		next := 0
		return policy.Func(func(policy.Attempt) policy.Decision {
			if next == len(p.Script) {
				return policy.Stop(ErrScriptEnded)
			}
			next++
			return p.Script[next-1].decision()
		})
	})
}

// RulesInForce returns the Rules of the preset Rules, complete.
func (p Policy) RulesInForce() policy.Rules {
	rules := p.Rules
	if p.Retryable {
		rules.Retryable = policy.Resilient().Retryable
	}
	rules.Rand = func() float64 { return p.Random }
	return rules
}

func (d Decision) decision() policy.Decision {
	switch d.Verb {
	case Stop:
		return policy.Stop(nil)
	case GiveUp:
		return policy.Stop(ErrGivenUp)
	case Undecided:
		return policy.Decision{}
	}
	decision := policy.After(d.After)
	if d.Within != nil {
		decision = decision.Within(*d.Within)
	}
	if d.Message != 0 {
		decision = decision.MessageTimeout(d.Message)
	}
	if d.Idle != 0 {
		decision = decision.Idle(d.Idle)
	}
	if d.Forget {
		decision = decision.Forget()
	}
	return decision
}
