-- The action "sash HOST PORT TARGET" asks Sash whether a request may pass, and sets variables of the transaction:
--   txn.sash_status              200, 429, or another status of Sash; unset if Sash did not answer
--   txn.sash_retry_after, txn.sash_ratelimit, txn.sash_ratelimit_policy      its fields, if Sash sent them
--
-- The action writes HTTP to a socket, because the Lua HTTP client of HAProxy 2.6 sends a request up to four times when
-- there is no answer, and each of them may be charged. The action sends it once.

local timeout = 2 -- seconds, for each of connecting, sending and receiving

local fields = {
	["retry-after"] = "txn.sash_retry_after",
	["ratelimit"] = "txn.sash_ratelimit",
	["ratelimit-policy"] = "txn.sash_ratelimit_policy",
}

-- build returns the request to Sash. It includes no other headers of the client.
local function build(txn, host, target)
	return table.concat({
		"GET " .. target .. " HTTP/1.0",
		"Host: " .. host,
		"X-Forwarded-For: " .. txn.sf:src(),
		"X-Forwarded-Host: " .. txn.sf:req_fhdr("host"),
		"X-Forwarded-Method: " .. txn.sf:method(),
		"X-Forwarded-Uri: " .. txn.sf:path(),
		"", "",
	}, "\r\n")
end

-- read sets the variables from the answer.
local function read(txn, socket)
	local status = string.match(socket:receive("*l") or "", "^HTTP/1%.%d (%d%d%d)")
	if not status then
		return
	end
	txn:set_var("txn.sash_status", tonumber(status))
	for line in function() return socket:receive("*l") end do
		local name, value = string.match(line, "^([^:]+):%s*(.-)%s*$")
		if not name then
			return -- the end of the header
		end
		local variable = fields[string.lower(name)]
		if variable then
			txn:set_var(variable, value)
		end
	end
end

core.register_action("sash", { "http-req" }, function(txn, host, port, target)
	local socket = core.tcp()
	socket:settimeout(timeout)
	if socket:connect(host, tonumber(port)) and socket:send(build(txn, host, target)) then
		read(txn, socket)
	end
	socket:close()
end, 3)
