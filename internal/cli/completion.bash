# bash completion for seine: source <(seine completion bash)
_seine() {
	local words=() join= i word out line
	# Bash cuts words at = and :, seine wants them whole.
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == [=:] || $join ]] && ((${#words[@]})); then
			words[${#words[@]} - 1]+=$word
		else
			words+=("$word")
		fi
		join=
		[[ $word == [=:] ]] && join=1
	done
	local cur=${COMP_WORDS[COMP_CWORD]}
	[[ $cur == [=:] ]] && cur=
	out=$("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null) || return
	local directive=${out##*:}
	out=${out%:*}
	COMPREPLY=()
	while IFS= read -r line; do
		line=${line%%$'\t'*}
		[[ $line && $line == "$cur"* ]] && COMPREPLY+=("$line")
	done <<<"$out"
	# Bits of cobra: 2 is no space behind it, 4 is no names of files.
	((directive & 2)) && compopt -o nospace
	((directive & 4)) && compopt +o default
	return 0
} 2>/dev/null
complete -o default -F _seine seine
