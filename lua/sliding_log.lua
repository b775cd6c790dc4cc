-- The sliding log: every unit of the trailing window, with its moment. src/ratelimit/algorithm/sliding_log.rs is the
-- specification, README.md tells how it is kept.

if with_logs then
  -- A moment and a serial, together digits alone, which take the least room where a log is short.
  local MEMBER, SERIAL = '%.0f%06d', -6
  local BEFORE_ALL = -1
  local rule = {}
  own.sliding_log = rule

  -- What is counted at `moment`, and what follows from it.
  function rule.read(key, moment, length, quota, cost)
    local from = format('%.0f', max(moment - length, BEFORE_ALL))
    if ARGV[1] ~= '' then
      -- Where stamps go back, what has left at one of them counts at none. The server's time has no need of a write.
      call('ZREMRANGEBYSCORE', key, '-inf', from)
    end
    local units = call('ZCOUNT', key, '(' .. from, '+inf')
    return {
      key = key, moment = moment, from = from, units = units, quota = quota, cost = cost,
      allowed = units + cost <= quota,
    }
  end

  -- Adds the cost at the moment at which the log was read. Beyond twice the quota the older units go, and if all
  -- others are as new, those of the cost are left out.
  function rule.charge(log, expire, time)
    local key, moment, cost = log.key, format('%.0f', log.moment), log.cost
    local over, dropped = log.units + cost - 2 * log.quota, 0
    if over > 0 then
      dropped = min(over, call('ZCOUNT', key, '(' .. log.from, '(' .. moment))
      cost = max(0, cost - over + dropped)
    end
    if cost > 0 then
      -- First, since it is what a server without memory refuses.
      local newest = call('ZRANGE', key, moment, moment, 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
      local serial = newest and tonumber(sub(newest, SERIAL)) or 0
      add_units(key, log.moment, serial, serial + cost, MEMBER)
      local ends = try(expire, key, time)
      if type(ends) == 'table' then
        -- No log rather than one without an end.
        try('DEL', key)
        error(ends)
      end
    end
    call('ZREMRANGEBYSCORE', key, '-inf', log.from)
    if dropped > 0 then
      call('ZREMRANGEBYRANK', key, 0, dropped - 1)
    end
    log.units = log.units + cost - dropped
  end

  -- The moment of the unit in this place, counted from the newest and from 1.
  local function from_newest(key, place)
    return tonumber(call('ZRANGE', key, place - 1, place - 1, 'REV', 'WITHSCORES')[2])
  end

  -- When those units came that must leave until the same request is admitted, and until one more unit than now is
  -- to be had; 0 where there is none.
  function rule.leaving(log)
    local quota, cost = log.quota, log.cost
    local place = min(quota, log.units)
    local unit = place > 0 and from_newest(log.key, place) or 0
    if log.allowed or cost > quota then
      return 0, unit
    end
    return cost == 1 and unit or from_newest(log.key, quota - cost + 1), unit
  end
end
