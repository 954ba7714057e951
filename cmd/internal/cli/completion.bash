# Completion of snapfs for bash 4 and later. It needs no other package.
_snapfs() {
	# Bash also divides words at ':' and '=', which are in the names of snapshots: what no blank divides is one word.
	local line=${COMP_LINE:0:COMP_POINT} words=() part i
	for ((i = 0; i <= COMP_CWORD; i++)); do
		part=${COMP_WORDS[i]}
		if ((i == 0)) || [[ $line == [[:space:]]* ]]; then
			line=${line#"${line%%[![:space:]]*}"}
			words+=("")
		fi
		[[ $line == "$part"* ]] || part=$line # the cursor is inside of it
		words[-1]+=$part
		line=${line#"$part"}
	done

	local current=${words[-1]} directive output
	output=$("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null) || return
	directive=${output##*:}
	output=${output%:*}
	COMPREPLY=()
	((directive & 1)) && return # an error

	# Completions are of the value of an option. What bash replaces begins after the last ':' or '='.
	local option= head= known
	if [[ $current == -*=* ]]; then
		[[ $COMP_WORDBREAKS == *=* ]] || option=${current%%=*}=
		current=${current#*=}
	fi
	[[ $COMP_WORDBREAKS != *:* ]] || head=${current%"${current##*:}"}
	if ((directive & 16)); then
		compopt -o dirnames -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "${current#"$head"}")
		return
	fi
	while IFS= read -r known; do
		known=${known%%$'\t'*}
		[[ -n $known && $known == "$current"* ]] && COMPREPLY+=("$option${known#"$head"}")
	done <<<"$output"
	((directive & 2)) && compopt -o nospace 2>/dev/null
	((directive & 4)) || [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default 2>/dev/null
}
complete -F _snapfs snapfs
