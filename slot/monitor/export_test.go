package monitor

import "time"

// RenewEvery makes a monitor that does not run yet replace its connection more often.
func (m *Monitor) RenewEvery(d time.Duration) { m.renew = d }

// ProbeMin is the least pause between attempts to connect.
const ProbeMin = probeMin
