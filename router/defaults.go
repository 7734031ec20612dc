package router

// defaultValue reads a column's default from its expression; nil: none that could be used.
func defaultValue(expression string, t *Type, c *codec) any { return nil }
