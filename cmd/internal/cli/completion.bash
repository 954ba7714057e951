# Completion of snapfs for bash 4 and later. It needs no other package.

# Sets plain to a typed word without its quoting, head to what of it bash does not replace, which ends at the last
# character that divides words, and open to the quote that is not closed. Nothing is expanded.
_snapfs_unquote() {
	local typed=$1 c
	plain='' head='' open=''
	while [[ -n $typed ]]; do
		c=${typed:0:1} typed=${typed:1}
		case $open$c in
		\\ | \"\\) plain+=${typed:0:1} typed=${typed:1} ;;
		\' | \") open=$c head=$plain ;;
		\'\' | \"\") open='' head=$plain ;;
		*)
			plain+=$c
			[[ -n $open || $COMP_WORDBREAKS != *"$c"* ]] || head=$plain
			;;
		esac
	done
}

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

	local plain head open directive output
	for ((i = 1; i < ${#words[@]}; i++)); do
		_snapfs_unquote "${words[i]}"
		words[i]=$plain
	done
	local current=$plain
	output=$("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null) || return
	directive=${output##*:}
	output=${output%:*}
	COMPREPLY=()
	((directive & 1)) && return # an error

	if ((directive & 16)); then
		compopt -o dirnames -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "${current#"$head"}")
		return
	fi
	local option='' known # completions are of the value of an option
	[[ $current != -*=* ]] || option=${current%%=*}=
	while IFS= read -r known; do
		known=$option${known%%$'\t'*}
		[[ $known != "$option" && $known == "$current"* ]] || continue
		known=${known#"$head"}
		# Names may have any character: what is offered is quoted. Inside of quotes, only what needs none is offered.
		if [[ -z $open ]]; then
			printf -v known %q "$known"
		elif [[ $known == *[\\\"\'\`\$!]* ]]; then
			continue
		fi
		COMPREPLY+=("$known")
	done <<<"$output"
	((directive & 2)) && compopt -o nospace 2>/dev/null
	((directive & 4)) || [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default 2>/dev/null
}
complete -F _snapfs snapfs
