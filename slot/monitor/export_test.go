package monitor

import "time"

// RenewEvery makes a monitor that does not run yet replace its connection more often.
func (m *Monitor) RenewEvery(d time.Duration) { m.renew = d }

// ProbeFor makes a monitor that does not run yet wait so long for a server that has ended its
// connection.
func (m *Monitor) ProbeFor(d time.Duration) { m.probe = d }

// ProbeMin is the least pause between attempts to connect.
const ProbeMin = probeMin
