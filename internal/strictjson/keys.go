package strictjson

import "bytes"

// fewKeys is how many keys of one object are compared one by one; beyond that a
// map is cheaper, and needed to stay linear.
const fewKeys = 16

// keyStack holds the unescaped keys of all objects that are open, one object's
// after the other's, without an allocation for usual bodies.
type keyStack struct {
	text []byte // the keys, one after the other, and then the pending one
	ends []int  // where each key ends in text
}

// keySet is one object's part of a keyStack, the topmost one while it is used.
type keySet struct {
	text, ends int                 // where its keys begin
	many       map[string]struct{} // all its keys; nil: there are few, in the stack
}

func (s *keyStack) enter() keySet { return keySet{text: len(s.text), ends: len(s.ends)} }

func (s *keyStack) leave(set keySet) {
	s.text = s.text[:set.text]
	s.ends = s.ends[:set.ends]
}

// pending is what was appended to text since the last key.
func (s *keyStack) pending() []byte {
	if len(s.ends) == 0 {
		return s.text
	}
	return s.text[s.ends[len(s.ends)-1]:]
}

// add makes the pending key part of set; false if it is in there already.
func (s *keyStack) add(set *keySet) bool {
	key := s.pending()
	if set.many == nil {
		start := set.text
		for _, end := range s.ends[set.ends:] {
			if bytes.Equal(s.text[start:end], key) {
				return false
			}
			start = end
		}
		if len(s.ends)-set.ends < fewKeys {
			s.ends = append(s.ends, len(s.text))
			return true
		}
		set.many = make(map[string]struct{})
		start = set.text
		for _, end := range s.ends[set.ends:] {
			set.many[string(s.text[start:end])] = struct{}{}
			start = end
		}
	}
	if _, found := set.many[string(key)]; found {
		return false
	}
	set.many[string(key)] = struct{}{}
	s.text = s.text[:len(s.text)-len(key)]
	return true
}
