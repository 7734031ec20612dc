package slot

func forecast(Observation) Forecast { return Forecast{} }
