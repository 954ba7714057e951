package hooks

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/tailscale/hujson"
)

// The hooks of a tool are put into its file as text: directly behind the bracket of what they belong into, on a line that
// they begin, and with a comma if something follows. So all else stays as it is, and what was put in can be taken out
// again. There are three kinds of insertion, each inside of the one before:
//
//	{"hooks": {"Stop": [{…}], …}    all hooks, if there is no "hooks"
//	"Stop": [{…}]                   an event, if "hooks" has not got it
//	{…}                             an entry of an event
//
// Where a tool has written its file anew since, entries are taken out by what they are.

// hookEntry is a command of ours in a file.
type hookEntry struct {
	event   string
	command string
	remove  []hookPart // the command first, and then what it is in
}

// hookPart is a part of a file, by JSON pointers: of what is removed if there is nothing in the other.
type hookPart struct{ part, list string }

// edit puts commands of a program into a tool's file after all of its events; program "" takes ours out.
func (t hookTool) edit(text, program string) (string, error) {
	const bom = "\ufeff"
	if rest, ok := strings.CutPrefix(text, bom); ok {
		rest, err := t.edit(rest, program)
		return bom + rest, err
	}
	root, err := parseHooks(text)
	if err != nil {
		return "", err
	}
	if program != "" && t.complete(root, program) {
		return text, nil
	}
	if text, err = t.takeOut(text); err != nil || program == "" {
		return text, err
	}
	return t.putIn(text, program)
}

// parseHooks parses a file, which may have comments.
func parseHooks(text string) (*hujson.Value, error) {
	root, err := hujson.Parse([]byte(text))
	if err != nil {
		return nil, conflict("the file is not JSON (%v): mend it first", err)
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		return nil, notDocumented("the whole is no object")
	}
	return &root, nil
}

func notDocumented(what string) error {
	return conflict("the file has not the form that the tool documents: %s", what)
}

// entries are the commands of ours.
func (t hookTool) entries(root *hujson.Value) []hookEntry {
	var found []hookEntry
	hooks := root.Find("/hooks")
	if hooks == nil {
		return nil
	}
	object, ok := hooks.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	for _, m := range object.Members {
		event := textOf(m.Name)
		list, ok := m.Value.Value.(*hujson.Array)
		if !ok {
			continue
		}
		at := "/hooks/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(event)
		for i := range list.Elements {
			entry := fmt.Sprintf("%s/%d", at, i)
			if command := commandOf(&list.Elements[i]); isHookLine(t.name, command) {
				found = append(found, hookEntry{event, command, []hookPart{{entry, ""}, {at, at}, {"/hooks", "/hooks"}}})
			}
			inner := list.Elements[i].Find("/hooks")
			if inner == nil {
				continue
			}
			commands, ok := inner.Value.(*hujson.Array)
			if !ok {
				continue
			}
			for j := range commands.Elements {
				if command := commandOf(&commands.Elements[j]); isHookLine(t.name, command) {
					found = append(found, hookEntry{event, command, []hookPart{
						{fmt.Sprintf("%s/hooks/%d", entry, j), ""}, {entry, entry + "/hooks"}, {at, at}, {"/hooks", "/hooks"},
					}})
				}
			}
		}
	}
	return found
}

// commandOf is the command that an entry names; "" if it names none.
func commandOf(entry *hujson.Value) string {
	if _, ok := entry.Value.(*hujson.Object); !ok {
		return ""
	}
	command := entry.Find("/command")
	if command == nil {
		return ""
	}
	return textOf(*command)
}

// textOf is the text of a literal.
func textOf(v hujson.Value) string {
	if literal, ok := v.Value.(hujson.Literal); ok && literal.Kind() == '"' {
		return literal.String()
	}
	return ""
}

// complete reports whether a file has each command of a program once, and none else of ours.
func (t hookTool) complete(root *hujson.Value, program string) bool {
	found := t.entries(root)
	if len(found) != len(t.events) {
		return false
	}
	have := map[string]string{}
	for _, e := range found {
		have[e.event] = e.command
	}
	for _, e := range t.events {
		if have[e.name] != hookLine(program, t.name, e.action) {
			return false
		}
	}
	return true
}

// takeOut removes what is ours.
func (t hookTool) takeOut(text string) (string, error) {
	cut := t.takeOutText(text)
	root, err := hujson.Parse([]byte(cut))
	if err != nil || json.Valid([]byte(text)) && !json.Valid([]byte(cut)) {
		if root, err = hujson.Parse([]byte(text)); err != nil {
			return "", err
		}
	} else if len(t.entries(&root)) == 0 {
		return cut, nil
	}
	for {
		found := t.entries(&root)
		if len(found) == 0 {
			return string(root.Pack()), nil
		}
		for _, p := range found[0].remove {
			if p.list != "" && !isEmpty(root.Find(p.list)) {
				break
			}
			patch, err := json.Marshal([]map[string]string{{"op": "remove", "path": p.part}})
			if err == nil {
				err = root.Patch(patch)
			}
			if err != nil {
				return "", notDocumented(err.Error())
			}
		}
	}
}

// isEmpty reports whether a value has nothing in it.
func isEmpty(v *hujson.Value) bool {
	if v == nil {
		return false
	}
	switch in := v.Value.(type) {
	case *hujson.Object:
		return len(in.Members) == 0
	case *hujson.Array:
		return len(in.Elements) == 0
	}
	return false
}

// takeOutText removes what putIn has put in, where it is as it was put in.
func (t hookTool) takeOutText(text string) string {
	command := `\{"type": "command", "command": "(?:[^"\\\n]|\\.)*` + hookLineEnd(t.name) + `"\}`
	entry := `\{"hooks": \[` + command + `\]\}`
	if !t.nested {
		entry = strings.Replace(command, `"type": "command", `, "", 1)
	}
	event := `"[A-Za-z]+": \[` + entry + `\]`
	for _, inserted := range []string{`  "hooks": \{` + event + `(?:, ` + event + `)*\}`, `    ` + event, `      ` + entry} {
		text = regexp.MustCompile(`\n`+inserted+`,?`).ReplaceAllLiteralString(text, "")
	}
	return text
}

// putIn inserts the commands of a program into a file that has none of ours.
func (t hookTool) putIn(text, program string) (string, error) {
	root, err := parseHooks(text)
	if err != nil {
		return "", err
	}
	hooks, err := memberOf(root, "hooks")
	if err != nil {
		return "", err
	}
	if hooks == nil {
		var all []string
		for _, e := range t.events {
			all = append(all, fmt.Sprintf("%q: [%s]", e.name, t.entry(program, e)))
		}
		return insertIn(text, root, `  "hooks": {`+strings.Join(all, ", ")+"}"), nil
	}
	for _, e := range t.events {
		if root, err = parseHooks(text); err != nil { // it has other offsets now
			return "", err
		}
		hooks = root.Find("/hooks")
		list, err := memberOf(hooks, e.name)
		if err != nil {
			return "", err
		}
		if list == nil {
			text = insertIn(text, hooks, fmt.Sprintf("    %q: [%s]", e.name, t.entry(program, e)))
			continue
		}
		if _, ok := list.Value.(*hujson.Array); !ok {
			return "", notDocumented(e.name + " is no list")
		}
		text = insertIn(text, list, "      "+t.entry(program, e))
	}
	return text, nil
}

// memberOf finds a member of an object; nil if it has none of that name. One that it has twice would be read in different
// ways.
func memberOf(v *hujson.Value, name string) (*hujson.Value, error) {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, notDocumented("hooks is no object")
	}
	var found *hujson.Value
	for i := range object.Members {
		if textOf(object.Members[i].Name) != name {
			continue
		}
		if found != nil {
			return nil, notDocumented(name + " is there twice")
		}
		found = &object.Members[i].Value
	}
	return found, nil
}

// entry is the command for an event as the tool's file has it.
func (t hookTool) entry(program string, e hookEvent) string {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(hookLine(program, t.name, e.action)) // a string
	command := strings.TrimSpace(text.String())
	if t.nested {
		return `{"hooks": [{"type": "command", "command": ` + command + `}]}`
	}
	return `{"command": ` + command + `}`
}

// insertIn inserts a line behind the bracket with which an object or a list begins.
func insertIn(text string, v *hujson.Value, line string) string {
	if !isEmpty(v) {
		line += ","
	}
	return text[:v.StartOffset+1] + "\n" + line + text[v.StartOffset+1:]
}
