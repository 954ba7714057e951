package httpapi_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"snapfs/sandbox/api"
	"snapfs/sandbox/httpapi"
)

// TestForeignIsNotThere: what another session has is answered, by every call, as what is not there.
func TestForeignIsNotThere(t *testing.T) {
	r := open(t, httpapi.Options{})
	who := api.Access{Session: "else"}
	ids := map[string][2]string{"snapshot_id": {"", "0199aaaa-0000-7000-8000-000000000000"}}
	for kind, label := range map[string]string{"sandboxes": "sandbox", "sandboxvolumes": "volume"} {
		name := "their-" + label
		if _, err := r.home.Create(t.Context(), api.CreateRequest{
			Access: who, Name: name, Labels: api.Labels{"rest/kind": label},
		}); err != nil {
			t.Fatal(err)
		}
		ids[kind] = [2]string{name, "none-" + label}
	}
	snapshot, err := r.home.Snapshot(t.Context(), api.SnapshotRequest{Access: who, Workspace: "their-sandbox", Name: "theirs"})
	if err != nil {
		t.Fatal(err)
	}
	ids["snapshot_id"] = [2]string{snapshot.ID, ids["snapshot_id"][1]}
	ids["templates"] = [2]string{"theirs", "absent"}
	_, own := r.claim(nil)

	alike := func(method, theirs, none string, body func(i int) any) {
		t.Helper()
		var got [2]answer
		for i, path := range []string{theirs, none} {
			got[i] = r.do(method, path, body(i))
			for _, names := range ids {
				got[i].body = []byte(strings.ReplaceAll(string(got[i].body), names[i], "THING"))
			}
		}
		if got[0].status != got[1].status || string(got[0].body) != string(got[1].body) {
			t.Errorf("%s %s: %d %s, but of what is not there %d %s",
				method, theirs, got[0].status, got[0].body, got[1].status, got[1].body)
		}
		if got[0].status < 400 || got[0].status == http.StatusForbidden {
			t.Errorf("%s %s: %d %s", method, theirs, got[0].status, got[0].body)
		}
	}
	all := routes(t, r.server)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		parts := strings.Split(path, "/")
		names, ok := ids[parts[3]]
		if strings.Contains(path, "{snapshot_id}") && !strings.Contains(path, "{id}") {
			names, ok = ids["snapshot_id"], true
		}
		if !ok || !strings.Contains(path, "{") || strings.HasSuffix(path, "/watch") {
			continue
		}
		at := func(i int) string {
			return strings.NewReplacer("{id}", names[i], "{snapshot_id}", ids["snapshot_id"][i]).Replace(path) + "?path=/x"
		}
		for _, method := range all[path] {
			alike(method, at(0), at(1), func(int) any { return map[string]any{} })
		}
	}
	claim := func(field, key string) func(int) any {
		return func(i int) any { return map[string]string{field: ids[key][i]} }
	}
	alike(http.MethodPost, root, root, claim("snapshot_id", "snapshot_id"))
	alike(http.MethodPost, root, root, claim("template", "templates"))
	alike(http.MethodPost, root, root, claim("template", "snapshot_id"))
	alike(http.MethodPost, "/api/v1/sandboxvolumes", "/api/v1/sandboxvolumes", claim("snapshot_id", "snapshot_id"))
	alike(http.MethodPost, "/api/v1/templates/from-sandbox", "/api/v1/templates/from-sandbox", func(i int) any {
		return map[string]string{"template_id": "new", "sandbox_id": ids["sandboxes"][i]}
	})
	get[httpapi.PauseResult](r, http.MethodPost, own+"/pause", nil)
	alike(http.MethodPost, own+"/rootfs/restore", own+"/rootfs/restore", claim("snapshot_id", "snapshot_id"))
}
