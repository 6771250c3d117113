package mcptransport

import "github.com/reprise-sse/reprise/policy"

// A Role is what a stream is for.
type Role int

const (
	// Call is the role of a stream that brings the answer to one call.
	Call Role = iota + 1

	// Listen is the role of the standby stream and of subscriptions.
	Listen
)

// String returns the constant's name in lower case.
func (r Role) String() string {
	switch r {
	case Call:
		return "call"
	case Listen:
		return "listen"
	default:
		return "unknown role"
	}
}

// ForVersion returns the policy for streams of a role under a revision of the
// protocol: policy.MCPListen for Listen; for Call policy.MCPCall where streams are
// resumable and policy.Never where they are not. An empty version stands for the
// handshake of the resumable era.
func ForVersion(version string, role Role) policy.Policy {
	switch {
	case role == Listen:
		return policy.MCPListen()
	case resumable(version):
		return policy.MCPCall()
	default:
		return policy.Never()
	}
}

// policy returns the policy for another stream.
func (c *connection) policy(version string, role Role) policy.Policy {
	if c.transport.Policy != nil {
		return c.transport.Policy(version, role)
	}
	return ForVersion(version, role)
}

// firstWithoutResumption is the revision that removed resumption, sessions and the GET
// stream.
const firstWithoutResumption = "2026-07-28"

// resumable reports whether a stream that breaks off can be resumed under a
// revision. Revisions are dates, so they compare as text; "draft" and the like
// compare greater than any.
func resumable(version string) bool { return version < firstWithoutResumption }

// forgetful wraps the policy of a subscription. Its era has no event IDs, so an ID that a
// server sends anyway is dropped.
type forgetful struct{ policy.Reconnector }

func (f forgetful) Next(a policy.Attempt) policy.Decision { return f.Reconnector.Next(a).Forget() }
