package javaregex

// class reads a bracketed class: unions, nested classes, negation and intersections.
func (t *translator) class() (runeSet, error) {
	t.pos++ // [
	negated := t.accept("^")
	left, current := everything(), runeSet{} // of && so far, and behind the last one
	for empty := true; ; empty = false {
		var set runeSet
		var err error
		switch c := t.peek(0); {
		case !t.more():
			return nil, t.errorf("unclosed character class")
		case c == ']' && !empty:
			t.pos++
			current = left.intersect(current)
			if negated {
				current = current.negate()
			}
			return current, nil
		case c == '&' && t.peek(1) == '&' && empty:
			return nil, t.errorf("nothing before && in a character class")
		case t.accept("&&"):
			if next := t.peek(0); next == ']' || next == '&' {
				return nil, t.errorf("nothing behind && in a character class")
			}
			left, current = left.intersect(current), runeSet{}
		case c == '[':
			set, err = t.class()
		case t.flags['x'] && (c == '#' || c == ' ' || c >= '\t' && c <= '\r'):
			return nil, t.errorf("blanks and # in a character class are not supported together " +
				"with the flag x; escape them")
		default:
			set, err = t.classItem()
		}
		if err != nil {
			return nil, err
		}
		current = current.union(set)
	}
}

// classItem reads a character, a range or an escape.
func (t *translator) classItem() (runeSet, error) {
	from, set, err := t.classCharacter()
	if err != nil || set != nil {
		return set, err
	}
	to := from
	if t.peek(0) == '-' && t.peek(1) != ']' && t.peek(1) != '[' && t.peek(1) != -1 &&
		(t.peek(1) != '&' || t.peek(2) != '&') {
		t.pos++
		if to, set, err = t.classCharacter(); err != nil {
			return nil, err
		}
		if set != nil || to < from {
			return nil, t.errorf("illegal character range")
		}
	}
	return classSet(from, to, t.flags), nil
}

func (t *translator) classCharacter() (rune, runeSet, error) {
	if t.peek(0) != '\\' {
		c := t.peek(0)
		t.pos++
		return c, nil, nil
	}
	if t.peek(1) == 'Q' || t.peek(1) == 'E' {
		return 0, nil, t.errorf(`\Q and \E are not supported in a character class`)
	}
	t.pos++
	if set, ok, err := t.namedSet(); ok || err != nil {
		return 0, set, err
	}
	c, err := t.character()
	return c, nil, err
}
